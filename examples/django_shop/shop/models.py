from django.db import models


class Customer(models.Model):
    email = models.EmailField(unique=True)
    welcomed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return str(self.email)
