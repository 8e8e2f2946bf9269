"""What happens to money: accounts, transfers, payments, settlement files."""
