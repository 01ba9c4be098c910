"""Limits as code: a file that says what a namespace should be like, and what it takes to make it so.

``reading`` turns the file into a :class:`~zae_limiter.manifests.model.Manifest`; ``observing`` looks at what exists;
``planning`` compares the two and decides; ``applying`` does what was decided and keeps the ``records`` of what each
manifest manages; ``exporting`` goes the other way. Only ``reading`` needs YAML (``pip install 'zae-limiter[cli]'``).
"""
