"""What the brokers said, put side by side: facts, histories and samples without a judgement."""
