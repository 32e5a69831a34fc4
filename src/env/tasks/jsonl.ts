import { MillraceError } from '../../errors/index.ts'
import type { TaskRow, TaskSource } from '../define/define-environment.ts'
import { hasInexactNumber, LineSplitter } from '../../kit/index.ts'
import { FileSource } from './file-source.ts'

/** The longest line; a longer one is a row that cannot be read. */
const maxLineBytes = 64 * 1024 * 1024
const byteOrderMark = '\u{feff}'

/**
 * Tasks from a file with one JSON value a line (unpacked if it is gzip), read as they are needed. Blank lines
 * are skipped. A relative path starts from the working directory; for a file beside the environment's module write
 * `jsonl(new URL('./questions.jsonl', import.meta.url))`.
 */
export function jsonl(path: string | URL): TaskSource {
  return new FileSource(path, (chunks, label) => readLines(chunks, label, JSON.parse))
}

/** Like `jsonl`, for rows that are sent on: one with a number that would not be written as it came is given as its text. */
export function jsonlAsWritten(path: string | URL): TaskSource {
  return new FileSource(path, (chunks, label) => readLines(chunks, label, exactValue))
}

/** A decimal that ends in a zero, or an exponent: `1.0` would be written as `1`, which is another type to a reader in Python. */
const otherSpelling = /\d\.\d*0(?!\d)|\d[eE][-+]?\d/

function exactValue(line: string): unknown {
  const value: unknown = JSON.parse(line)
  return hasInexactNumber(value) || otherSpelling.test(line) ? line : value
}

type ReadValue = (line: string) => unknown

async function* readLines(
  chunks: AsyncIterable<Buffer>,
  label: string,
  valueOf: ReadValue,
): AsyncGenerator<TaskRow[], void, void> {
  const splitter = new LineSplitter(maxLineBytes)
  let lineNumber = 0
  let isFirst = true
  const rowsOf = (lines: readonly (string | undefined)[]): TaskRow[] => {
    const rows: TaskRow[] = []
    for (const line of lines) {
      lineNumber += 1
      const text = lineNumber === 1 && line?.startsWith(byteOrderMark) ? line.slice(1) : line
      if (text?.trim() === '') continue
      const row = rowOf(text, `${label} line ${lineNumber}`, valueOf)
      if (isFirst && 'problem' in row && beginsLongValue(text)) throw notLines(label)
      isFirst = false
      rows.push(row)
    }
    return rows
  }
  for await (const chunk of chunks) yield rowsOf(splitter.push(chunk))
  yield rowsOf(splitter.end())
}

/** Whether a line that is no JSON value begins one that goes on below it: a list, or an object alone on its line. */
function beginsLongValue(line = ''): boolean {
  return /^\s*(\[|\{\s*$)/.test(line)
}

function notLines(label: string): MillraceError {
  return new MillraceError(
    'tasks_failed',
    `${label} is JSON over several lines, and jsonl() reads one value a line: jq -c '.[]' makes lines of a list, jq -c . of objects`,
  )
}

function rowOf(line: string | undefined, at: string, valueOf: ReadValue): TaskRow {
  if (line === undefined) return { at, problem: `the line is longer than ${maxLineBytes / 1024 / 1024} MB` }
  try {
    return { at, value: valueOf(line) }
  } catch (error) {
    // The line is in `at`; Node's message counts it as the first.
    const { rawMessage } = MillraceError.from(error, 'internal')
    const why = rawMessage.replace(/ at position \d+ \(line 1 column (\d+)\)$/, ' at column $1')
    return { at, problem: `not valid JSON: ${why}. Correct the line.` }
  }
}
