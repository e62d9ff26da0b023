"""The native half of a GPU: free lists, launches, and the notes of who started them."""
