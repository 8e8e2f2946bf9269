"""What belongs to a system, from its declaration: shown (`page`) and begun (`begin`)."""
