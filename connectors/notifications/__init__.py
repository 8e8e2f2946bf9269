"""How notifications reach people: templates, providers of mail, SMS and push, their callbacks."""
