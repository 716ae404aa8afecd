from django.db import IntegrityError, transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Customer
from shop.tasks import send_welcome


@csrf_exempt
@require_POST
def sign_up(request: HttpRequest) -> JsonResponse:
    # The customer and the task are committed together. If the transaction rolls back, no mail is sent.
    try:
        with transaction.atomic():
            customer = Customer.objects.create(email=request.POST["email"])
            handle = send_welcome.enqueue(customer.pk)
    except IntegrityError:
        return JsonResponse({"error": "This customer exists already."}, status=409)
    return JsonResponse({"customer": customer.pk, "task": str(handle.task_id)}, status=201)
