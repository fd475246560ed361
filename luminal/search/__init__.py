"""The search: which schedule (and later which algebra and which cuts) runs fastest on this machine."""
