"""How calls reach DynamoDB and come back. Nothing here imports botocore or aiohttp before the first call."""
