"""Programs that answer like DynamoDB, for tests: installed by ``make setup``, started when a test asks."""
