"""The decisions of the DynamoDB store, as plans over the requests of ``stores.dynamodb.requests``."""
