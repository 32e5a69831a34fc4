import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect } from 'vitest'
import { runFiles, RunReader, type Journal } from '../../src/store/index.ts'
import { rolloutEntries, type RolloutShape } from './_fixtures.ts'

/** Appends all of one ended rollout for each of the tasks, none of them in parts. */
export function appendRollouts(journal: Journal, tasks: readonly number[], shape: RolloutShape = {}): void {
  for (const task of tasks) journal.appendAll(rolloutEntries(task, shape))
}

/** How many rollouts have ended in a run, which must be sound. */
export function endedIn(folder: string): number {
  using reader = RunReader.open(folder)
  expect(reader.integrity()).toEqual([])
  return reader.counts().ended
}

/** Keeps the database of a run from taking results, until `mendDatabase`. */
export function breakDatabase(folder: string): void {
  change(folder, 'ALTER TABLE rollout RENAME TO elsewhere')
}

export function mendDatabase(folder: string): void {
  change(folder, 'ALTER TABLE elsewhere RENAME TO rollout')
}

function change(folder: string, sql: string): void {
  using database = new DatabaseSync(join(folder, runFiles.database))
  database.exec(sql)
}
