CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    digest TEXT NOT NULL
  );
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
  , routed_experts /* payload */);
CREATE INDEX node_attempt ON node (rollout, attempt);
CREATE TABLE event (
    position INTEGER PRIMARY KEY,
    rollout TEXT,
    attempt INTEGER NOT NULL,
    name TEXT NOT NULL,
    at INTEGER NOT NULL,
    data /* payload */ NOT NULL
  );
CREATE TABLE attempt (
    rollout TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    parent TEXT,
    task INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT,
    leaf INTEGER,
    discarded INTEGER NOT NULL DEFAULT 0,
    -- The position of the accepted result; at most one attempt of a rollout has one.
    result INTEGER,
    record /* payload */,
    PRIMARY KEY (rollout, attempt)
  ) WITHOUT ROWID;
CREATE INDEX attempt_parent ON attempt (parent) WHERE parent IS NOT NULL;
CREATE TABLE rollout (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    task INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reward REAL,
    leaf INTEGER,
    ended_at INTEGER NOT NULL,
    -- How long rollouts.jsonl is up to and with this result. Only the last row's is looked at.
    lines_length INTEGER NOT NULL,
    record /* payload */ NOT NULL
  );
INSERT INTO meta VALUES ('schema_version', 3);
INSERT INTO task VALUES (0, 'task-0', 'd0');
INSERT INTO attempt VALUES ('0-0', 1, NULL, 0, 0, 1700000000001, 1700000000002, 'completed', 1, 0, 1, '{"id":"0-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
INSERT INTO attempt VALUES ('1-0', 1, NULL, 1, 0, 1700000000001, NULL, NULL, NULL, 0, NULL, NULL);
INSERT INTO node VALUES (1, '0-0', 1, 0, NULL, 'h0', 0, 1700000000001, NULL, NULL, '{"role":"user","content":"question 0"}', NULL, NULL, NULL, NULL);
INSERT INTO node VALUES (2, '0-0', 1, 1, 0, 'h1', 1, 1700000000001, NULL, NULL, '{"role":"assistant","content":"antwört 0 🙂"}', NULL, NULL, NULL, NULL);
INSERT INTO node VALUES (3, '0-0', 1, 2, 1, 'h2', 0, 1700000000001, '7', '{"call":{"model":"m"},"routedExperts":{"shape":[2],"bytesEach":1}}', '{"role":"user","content":"2"}', X'0100000002000000', X'0500000006000000', X'000000bf000080bf', X'0304');
INSERT INTO node VALUES (4, '1-0', 1, 0, NULL, 'h0', 0, 1700000000001, NULL, NULL, '{"role":"user","content":"0"}', NULL, NULL, NULL, NULL);
INSERT INTO event VALUES (1, NULL, 0, 'limit-change', 5, '{"to":2}');
INSERT INTO rollout VALUES (1, '0-0', 0, 0, 1, 'completed', 1, 1, 1700000000003, 365, '{"id":"0-0","sample":0,"attempt":1,"outcome":"completed","reward":1,"task":{},"rewards":{},"metrics":{},"usage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"judgeUsage":{"calls":0,"input":0,"cachedInput":0,"output":0,"reasoning":0},"timing":{}}');
