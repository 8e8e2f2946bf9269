-- Query 7 with a window top-N instead of a join: no bid is kept, and of equal prices one is given.

CREATE TABLE nexmark_q7 (
  auction  BIGINT,
  bidder  BIGINT,
  price  BIGINT,
  `dateTime`  TIMESTAMP(3),
  extra  VARCHAR
);

CREATE VIEW narrow AS SELECT auction, price, bidder, `dateTime`, extra FROM bid;

INSERT INTO nexmark_q7
SELECT auction, price, bidder, `dateTime`, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
  FROM TABLE(TUMBLE(TABLE narrow, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
)
WHERE place <= 1;
