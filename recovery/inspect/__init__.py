"""The brokers' answers side by side: facts, histories and samples without a judgement."""
