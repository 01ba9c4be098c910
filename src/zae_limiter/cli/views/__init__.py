"""What each answer looks like: from values to documents and to pictures. Nothing here asks a store."""
