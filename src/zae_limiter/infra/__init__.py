"""A deployment on AWS: its template, its stack, its function, its health and its price."""
