"""The demonstration: public data through the whole product, and every count checked.

`sources` maps data sets to events, `waves` puts them in the order of delivery (copies for
`--scale`, and repeats), `recount` says what must come out without using a line of the product,
`compare` reads what did come out.
"""
