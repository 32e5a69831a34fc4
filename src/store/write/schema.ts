import type { DatabaseSync } from 'node:sqlite'
import { MillraceError } from '../../errors/index.ts'

/** The version of the schema, kept as the database's `user_version`. A database of any other version is refused. */
export const schemaVersion = 2

/**
 * Columns marked `payload` hold the value itself or, when it is large, a reference into the blobs. A page costs a commit 5 µs
 * whatever is on it, so the rows of a rollout lie on as few pages as possible. Task rows lie in the order they came: with the
 * digest as primary key, each insert wrote a page anywhere, which took twice the CPU with a million of them. A session's
 * messages are nodes, under its id and attempt 0.
 */
const schema = `
  CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    digest TEXT NOT NULL
  );
  CREATE TABLE task_row (
    position INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    row /* payload */ NOT NULL
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
    -- It does not count: its rollout starts over, or its result was taken back to be run again.
    discarded INTEGER NOT NULL DEFAULT 0,
    -- The position of the accepted result; at most one attempt of a rollout has one.
    result INTEGER,
    record /* payload */,
    PRIMARY KEY (rollout, attempt)
  ) WITHOUT ROWID;
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
    logprobs /* payload */,
    routed_experts /* payload */
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
  CREATE INDEX event_attempt ON event (rollout, attempt, name) WHERE rollout IS NOT NULL;
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
`

/** Makes the tables of a new database, all of them or none. A database that has tables must be of this version. */
export function createSchema(database: DatabaseSync, folder: string): void {
  if (isEmpty(database)) database.exec(`BEGIN IMMEDIATE; ${schema}; PRAGMA user_version = ${schemaVersion}; COMMIT`)
  else requireVersion(database, folder)
}

export function isEmpty(database: DatabaseSync): boolean {
  return database.prepare('SELECT 1 FROM sqlite_schema').get() === undefined
}

export function requireVersion(database: DatabaseSync, folder: string): void {
  const version = Number(database.prepare('PRAGMA user_version').get()?.['user_version'])
  if (version === schemaVersion) return
  throw new MillraceError(
    'store_version',
    `the run in ${folder} has schema version ${version} and this Millrace reads and writes version ${schemaVersion}; open it with the Millrace that wrote it, or start another run with --run <name> (run.name)`,
    { data: { version, supported: schemaVersion } },
  )
}
