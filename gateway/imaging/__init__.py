"""Pictures decoded, in processes of their own."""
