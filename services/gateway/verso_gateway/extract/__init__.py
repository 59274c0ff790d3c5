"""Texts out of files: PDF, HTML, office documents, e-mail.

The gateway itself loads none of the libraries that read files. It keeps processes of
``python -m verso_gateway.extract`` (:mod:`~verso_gateway.extract.pool`), which fork once more for
each file and bound its time, memory and output (:mod:`~verso_gateway.extract.child`).
"""
