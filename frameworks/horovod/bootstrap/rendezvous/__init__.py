"""Where the ranks find rank 0, when horovodrun has not started them."""
