"""What the pages share: style, charts, and a policy that keeps foreign scripts out."""
