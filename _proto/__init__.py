"""How a trace is written: its bytes, its HLO texts, the programs beside it. Nothing but that."""
