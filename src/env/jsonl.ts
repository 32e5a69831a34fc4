import { LineSplitter } from '../kit/index.ts'
import { FileSource } from './_file-source.ts'
import type { TaskRow, TaskSource } from './task-source.ts'

/** The longest line; a longer one is a row that cannot be read. */
const maxLineBytes = 64 * 1024 * 1024
const byteOrderMark = '\u{feff}'

/**
 * Tasks from a file with one JSON value a line (unpacked if its name ends in `.gz`), read as they are needed. Blank lines
 * are skipped. A relative path starts from the working directory; for a file beside the environment's module write
 * `jsonl(new URL('./questions.jsonl', import.meta.url))`.
 */
export function jsonl(path: string | URL): TaskSource {
  return new FileSource(path, readLines)
}

async function* readLines(chunks: AsyncIterable<Buffer>, label: string): AsyncGenerator<TaskRow[], void, void> {
  const splitter = new LineSplitter(maxLineBytes)
  let lineNumber = 0
  const rowsOf = (lines: readonly (string | undefined)[]): TaskRow[] => {
    const rows: TaskRow[] = []
    for (const line of lines) {
      lineNumber += 1
      const text = lineNumber === 1 && line?.startsWith(byteOrderMark) ? line.slice(1) : line
      if (text?.trim() !== '') rows.push(rowOf(text, `${label} line ${lineNumber}`))
    }
    return rows
  }
  for await (const chunk of chunks) yield rowsOf(splitter.push(chunk))
  yield rowsOf(splitter.end())
}

function rowOf(line: string | undefined, at: string): TaskRow {
  if (line === undefined) return { at, problem: `the line is longer than ${maxLineBytes / 1024 / 1024} MB` }
  try {
    return { at, value: JSON.parse(line) }
  } catch (error) {
    return { at, problem: `not valid JSON: ${error instanceof Error ? error.message : String(error)}` }
  }
}
