"""Tasks of the shop. Django finds this module by its name."""

from datetime import timedelta

from django.core.mail import send_mail
from django.utils import timezone

from holdfast.contrib.django import app
from shop.models import Customer


@app.task("mail.welcome", max_attempts=5, timeout=30)
def send_welcome(customer_id: int) -> None:
    customer = Customer.objects.get(pk=customer_id)
    send_mail("Welcome!", "Your account is ready.", None, [customer.email])
    customer.welcomed_at = timezone.now()
    customer.save()


@app.schedule("0 6 * * *", tz="Europe/Berlin")
@app.task("shop.remove_old_customers")
def remove_old_customers(days: int = 365) -> int:
    old = Customer.objects.filter(welcomed_at__lt=timezone.now() - timedelta(days=days))
    return int(old.delete()[0])
