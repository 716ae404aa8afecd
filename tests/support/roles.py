"""The roles that an installation has besides its owner."""

ROLES = [
    *("holdfast_client", "holdfast_process", "holdfast_worker"),
    *("holdfast_dispatcher", "holdfast_operator", "holdfast_reader", "holdfast_caller"),
]
