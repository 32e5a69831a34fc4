import type { DatabaseSync } from 'node:sqlite'
import { MillraceError } from '../errors/index.ts'

/**
 * Step n brings a database from version n to n + 1. Steps are only ever added. Columns marked `payload` hold the value
 * itself or, when it is large, a reference into the blobs (see _blob-store.ts).
 */
const steps: readonly string[] = [
  `
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
  `,
  // A page costs a commit 5 µs whatever is on it, so the rows of a rollout lie on as few pages as possible: attempts are their
  // own index, results are found through their attempt, and the length of `rollouts.jsonl` needs no row of its own.
  `
  ALTER TABLE attempt RENAME TO attempt_1;
  DROP INDEX attempt_parent;
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
  INSERT INTO attempt
    SELECT attempt_1.rollout, attempt_1.attempt, parent, attempt_1.task, attempt_1.sample, started_at,
           attempt_1.ended_at, attempt_1.outcome, attempt_1.leaf, discarded, rollout.position, attempt_1.record
    FROM attempt_1 LEFT JOIN rollout ON rollout.id = attempt_1.rollout AND rollout.attempt = attempt_1.attempt;
  DROP TABLE attempt_1;
  ALTER TABLE rollout RENAME TO rollout_1;
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
  INSERT INTO rollout
    SELECT position, id, task, sample, attempt, outcome, reward, leaf, ended_at,
           ifnull((SELECT value FROM meta WHERE key = 'lines_length'), 0), record
    FROM rollout_1;
  DROP TABLE rollout_1;
  DELETE FROM meta WHERE key = 'lines_length';
  `,
  'ALTER TABLE node ADD COLUMN routed_experts /* payload */',
  // A session's messages are nodes, under its id and attempt 0. A start writes to pages anywhere in the indexes of `id` and
  // `key_digest`; its other pages are shared: a group starts together, and the table and the indexes of tenants and open sessions
  // grow at their end.
  `
  CREATE TABLE session (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    group_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key_digest TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    end_reason TEXT,
    -- The last node of the run when the session ended: none of its own is beyond it.
    last_node INTEGER,
    data /* payload */ NOT NULL
  );
  CREATE INDEX session_key ON session (key_digest);
  CREATE INDEX session_group ON session (group_id);
  CREATE INDEX session_tenant ON session (tenant);
  CREATE INDEX session_open ON session (position) WHERE ended_at IS NULL;
  CREATE TABLE reward (
    session TEXT NOT NULL,
    -- -1 for the session as a whole.
    node INTEGER NOT NULL,
    value REAL NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (session, node)
  ) WITHOUT ROWID;
  `,
  // Rows are apart from their tasks, so that equal ones are stored once. They lie in the order they came: where the digest was the
  // primary key, each insert wrote a page of rows anywhere, which took twice the CPU with a million of them.
  `
  CREATE TABLE task_row (
    position INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    row /* payload */ NOT NULL
  );
  `,
]

/** The schema version that this code reads and writes. */
export const schemaVersion = steps.length

/** Brings the database up to date, all of it or nothing. */
export function migrate(database: DatabaseSync, folder: string): void {
  database.exec('CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID')
  const version = storedVersion(database)
  if (version === schemaVersion) return
  if (version > schemaVersion) throw tooNew(folder, version)
  database.exec('BEGIN IMMEDIATE')
  try {
    for (const step of steps.slice(version)) database.exec(step)
    database.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES ('schema_version', ?)").run(schemaVersion)
    database.exec('COMMIT')
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK')
    throw error
  }
}

/** Refuses any other version: readers cannot migrate. */
export function requireVersion(database: DatabaseSync, folder: string): void {
  const version = storedVersion(database)
  if (version > schemaVersion) throw tooNew(folder, version)
  if (version < schemaVersion) {
    throw new MillraceError(
      'store_version',
      `the run in ${folder} has schema ${version} and this Millrace reads ${schemaVersion}; continue it once, with the command that made it, to bring it up to date`,
      { data: { version, supported: schemaVersion } },
    )
  }
}

function storedVersion(database: DatabaseSync): number {
  const row = database.prepare("SELECT value FROM meta WHERE key = 'schema_version'").get()
  return Number(row?.['value'] ?? 0)
}

function tooNew(folder: string, version: number): MillraceError {
  return new MillraceError(
    'store_version',
    `the run in ${folder} was written by a newer Millrace (schema ${version}, this one knows ${schemaVersion}); update millrace, or start another run with --run <name> (run.name)`,
    { data: { version, supported: schemaVersion } },
  )
}
