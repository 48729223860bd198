"""The same losses elsewhere: a detector trained on the number that it is judged by (lesson 31)."""
