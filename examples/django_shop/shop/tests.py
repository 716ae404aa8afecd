from datetime import timedelta

from django.core import mail
from django.test import TestCase

from holdfast.contrib.django.testing import Sandbox
from shop.models import Customer
from shop.tasks import remove_old_customers, send_welcome


class SignUpTests(TestCase):
    def setUp(self) -> None:
        self.holdfast = Sandbox()

    def test_a_customer_who_signs_up_gets_a_mail(self) -> None:
        answered = self.client.post("/sign-up", {"email": "ada@example.com"})
        self.assertEqual(answered.status_code, 201)
        self.holdfast.assert_enqueued(send_welcome, customer_id=answered.json()["customer"])
        [ran] = self.holdfast.drain()
        self.assertEqual(ran.status, "succeeded")
        self.assertEqual(mail.outbox[0].to, ["ada@example.com"])
        self.assertIsNotNone(Customer.objects.get().welcomed_at)

    def test_a_customer_who_exists_gets_no_second_mail(self) -> None:
        Customer.objects.create(email="ada@example.com")
        answered = self.client.post("/sign-up", {"email": "ada@example.com"})
        self.assertEqual(answered.status_code, 409)
        self.holdfast.assert_not_enqueued(send_welcome)

    def test_old_customers_are_removed_every_morning(self) -> None:
        ran = self.holdfast.drain(until=timedelta(days=1))
        self.assertEqual([one.type for one in ran], [remove_old_customers.type])
