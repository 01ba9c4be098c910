"""The limiter as a service, for every language: HTTP and JSON in front of any store (``zae-limiter serve``).

One table says what there is (``routes``): each entry has its path, the role it takes, the form of its body and its
function. ``app`` makes it an ASGI application, ``openapi`` a document, ``endpoint`` guards it, reads bodies and turns
errors into problem documents. ``backend`` has the limiters, ``server`` runs all of it in a process and ends it
gracefully. Replicas keep nothing that another one needs: leases have records in the store.

Needs the extra ``service``. It uses public names of the library only, and nothing imports it but the
command line.
"""
