"""Pictures and tables that notebooks show; nothing else depends on them."""
