from django.contrib import admin
from django.urls import path

from shop.views import sign_up

urlpatterns = [path("sign-up", sign_up), path("admin/", admin.site.urls)]
