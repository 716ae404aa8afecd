from holdfast.app import App as App
from holdfast.batch import Batch as Batch
from holdfast.context import Context as Context
from holdfast.context import SyncContext as SyncContext
from holdfast.errors import DatabaseUnavailable as DatabaseUnavailable
from holdfast.errors import HoldfastError as HoldfastError
from holdfast.errors import InvalidArgument as InvalidArgument
from holdfast.errors import InvalidState as InvalidState
from holdfast.errors import KeyConflict as KeyConflict
from holdfast.errors import NotAllowed as NotAllowed
from holdfast.errors import NotFound as NotFound
from holdfast.errors import PartialBatchError as PartialBatchError
from holdfast.errors import QuotaExceeded as QuotaExceeded
from holdfast.errors import StepFailed as StepFailed
from holdfast.errors import TaskCancelled as TaskCancelled
from holdfast.errors import TaskFailed as TaskFailed
from holdfast.errors import TransactionConflict as TransactionConflict
from holdfast.handle import Handle as Handle
from holdfast.handle import TaskInfo as TaskInfo
from holdfast.middleware import Middleware as Middleware
from holdfast.outcome import Cancel as Cancel
from holdfast.outcome import Fail as Fail
from holdfast.outcome import Retry as Retry
from holdfast.outcome import Snooze as Snooze
from holdfast.resources import Resources as Resources
from holdfast.retry import ByException as ByException
from holdfast.retry import Exponential as Exponential
from holdfast.retry import Linear as Linear
from holdfast.retry import NoRetry as NoRetry
from holdfast.retry import RetryPolicy as RetryPolicy
from holdfast.task import Task as Task

__all__ = [
    "App",
    "Batch",
    "ByException",
    "Cancel",
    "Context",
    "DatabaseUnavailable",
    "Exponential",
    "Fail",
    "Handle",
    "HoldfastError",
    "InvalidArgument",
    "InvalidState",
    "KeyConflict",
    "Linear",
    "Middleware",
    "NoRetry",
    "NotAllowed",
    "NotFound",
    "PartialBatchError",
    "QuotaExceeded",
    "Resources",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "StepFailed",
    "SyncContext",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskInfo",
    "TransactionConflict",
    "__version__",
]
__version__: str
