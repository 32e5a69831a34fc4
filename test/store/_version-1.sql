CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE task (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  digest TEXT NOT NULL
);
CREATE TABLE attempt (
  position INTEGER PRIMARY KEY,
  rollout TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  parent TEXT,
  task INTEGER NOT NULL,
  sample INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  outcome TEXT,
  leaf INTEGER,
  -- It does not count: its rollout starts over, or its result was taken back to be run again.
  discarded INTEGER NOT NULL DEFAULT 0,
  record /* payload */,
  UNIQUE (rollout, attempt)
);
CREATE INDEX attempt_parent ON attempt (parent) WHERE parent IS NOT NULL;
CREATE TABLE node (
  position INTEGER PRIMARY KEY,
  rollout TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  parent INTEGER,
  hash TEXT NOT NULL,
  sampled INTEGER NOT NULL,
  at INTEGER NOT NULL,
  version TEXT,
  meta TEXT,
  message /* payload */ NOT NULL,
  prompt_ids /* payload */,
  ids /* payload */,
  logprobs /* payload */
);
CREATE INDEX node_attempt ON node (rollout, attempt);
CREATE TABLE event (
  position INTEGER PRIMARY KEY,
  rollout TEXT,
  attempt INTEGER NOT NULL,
  name TEXT NOT NULL,
  at INTEGER NOT NULL,
  data /* payload */ NOT NULL
);
CREATE TABLE rollout (
  position INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  task INTEGER NOT NULL,
  sample INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  reward REAL,
  leaf INTEGER,
  ended_at INTEGER NOT NULL,
  record /* payload */ NOT NULL
);
INSERT INTO meta VALUES ('lines_length', 1095);
INSERT INTO meta VALUES ('schema_version', 1);
INSERT INTO task VALUES (0, 'task-0', 'd0');
INSERT INTO task VALUES (1, 'task-1', 'd1');
INSERT INTO task VALUES (2, 'task-2', 'd2');
INSERT INTO attempt VALUES (1, '0-0', 1, NULL, 0, 0, 1700000000001, 1700000000002, 'completed', 1, 0, '{"id":"0-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO attempt VALUES (2, '1-0', 1, NULL, 1, 0, 1700000000001, 1700000000002, 'completed', 1, 0, '{"id":"1-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO attempt VALUES (3, '2-0', 1, NULL, 2, 0, 1700000000001, 1700000000002, 'completed', 1, 0, '{"id":"2-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO attempt VALUES (4, '3-0', 1, NULL, 5, 0, 1700000000001, 1700000000020, 'model_error', NULL, 1, '{"id":"3-0","attempt":1,"outcome":"model_error","task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO attempt VALUES (5, '3-0', 2, NULL, 5, 0, 1700000000002, NULL, NULL, NULL, 0, NULL);
INSERT INTO attempt VALUES (6, '4-0', 1, NULL, 5, 0, 1700000000001, 1700000000020, 'completed', NULL, 0, '{"id":"4-0","attempt":1,"outcome":"completed","task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO attempt VALUES (7, '3-0.child', 2, '3-0', 5, 0, 1700000000002, NULL, NULL, NULL, 0, NULL);
INSERT INTO node VALUES (1, '0-0', 1, 0, NULL, 'h0', 0, 1700000000001, NULL, NULL, '{"role":"user","content":"question 0"}', NULL, NULL, NULL);
INSERT INTO node VALUES (2, '0-0', 1, 1, 0, 'h1', 1, 1700000000001, NULL, NULL, '{"role":"assistant","content":"antwört 0 🙂"}', NULL, NULL, NULL);
INSERT INTO node VALUES (3, '1-0', 1, 0, NULL, 'h0', 0, 1700000000001, NULL, NULL, '{"role":"user","content":"question 1"}', NULL, NULL, NULL);
INSERT INTO node VALUES (4, '1-0', 1, 1, 0, 'h1', 1, 1700000000001, NULL, NULL, '{"role":"assistant","content":"antwört 1 🙂"}', NULL, NULL, NULL);
INSERT INTO node VALUES (5, '2-0', 1, 0, NULL, 'h0', 0, 1700000000001, NULL, NULL, '{"role":"user","content":"question 2"}', NULL, NULL, NULL);
INSERT INTO node VALUES (6, '2-0', 1, 1, 0, 'h1', 1, 1700000000001, NULL, NULL, '{"role":"assistant","content":"antwört 2 🙂"}', NULL, NULL, NULL);
INSERT INTO rollout VALUES (1, '0-0', 0, 0, 1, 'completed', 1, 1, 1700000000003, '{"id":"0-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO rollout VALUES (2, '1-0', 1, 0, 1, 'completed', 1, 1, 1700000000003, '{"id":"1-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO rollout VALUES (3, '2-0', 2, 0, 1, 'completed', 1, 1, 1700000000003, '{"id":"2-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
