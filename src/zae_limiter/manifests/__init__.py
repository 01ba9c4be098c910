"""Limits as code: a file that says what a namespace should be like, and what it takes to make it so.

``parser`` turns the file into a :class:`~zae_limiter.manifests.model.Manifest`; ``inventory`` reads what exists;
``change_plan`` compares the two and decides; ``apply`` makes the changes and keeps the records of what each manifest
manages (``record_format``, ``record_store``); ``export`` goes the other way. Only ``parser`` needs YAML,
which comes with the extra ``cli``.
"""
