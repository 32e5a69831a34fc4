import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { RunFile } from '../../../src/store/index.ts'
import { JournalWriter } from '../../../src/store/write/journal-writer.ts'
import { newRunFile, writeRunFile } from '../../../src/store/run/run-file.ts'
import { newRun } from './fixtures.ts'

export const dayMs = 24 * 3_600_000

/** A run as it lies there `days` after it was made. */
export function placeRun(root: string, name: string, parts: Partial<RunFile> & { days?: number } = {}): void {
  const { days = 0, ...file } = parts
  const at = new Date(Date.now() - days * dayMs).toISOString()
  mkdirSync(join(root, name))
  const launches = [{ startedAt: at, endedAt: at }]
  writeRunFile(join(root, name), { ...newRunFile(newRun({ name })), createdAt: at, launches, ...file })
  JournalWriter.open(join(root, name)).close()
}
