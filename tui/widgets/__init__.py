"""The parts that screens are made of: tables, lines, the prompt, overlays."""
