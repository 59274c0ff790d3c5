"""Whether an answer should be given: what tells a question with an answer from one without."""
