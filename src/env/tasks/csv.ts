import { CsvError, parse, type Options, type Parser } from 'csv-parse'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import type { TaskRow, TaskSource } from '../define/define-environment.ts'
import { checkOptions } from '../define/check-options.ts'
import { FileSource } from './file-source.ts'

/** The largest record; a longer one is nearly always an unclosed quote. */
const maxRecordBytes = 16 * 1024 * 1024

export interface CsvOptions {
  /** The names of the columns, for a file without a header. */
  readonly columns?: readonly string[]
  /** The default is `,`. */
  readonly delimiter?: string
}

/**
 * Tasks from a file of comma-separated values (unpacked if it is gzip), read as they are needed. Each record
 * becomes an object of strings; a schema with `z.coerce.number()` makes numbers of them. Messages count rows, not lines:
 * the header is row 1, a record with line breaks in it is one, and empty lines are none.
 */
export function csv(path: string | URL, options: CsvOptions = {}): TaskSource {
  checkOptions('csv()', { columns: z.array(z.string()).optional(), delimiter: z.string().optional() }, options)
  return new FileSource(path, (chunks, label) => new RecordReader(label, options).read(chunks), { isTable: true })
}

class RecordReader {
  readonly #label: string
  readonly #parser: Parser
  #rowNumber: number
  #rows: TaskRow[] = []

  constructor(label: string, { columns, delimiter }: CsvOptions) {
    this.#label = label
    this.#rowNumber = columns ? 0 : 1
    // Records are taken from callbacks, not from the stream, so that broken ones keep their place among the others.
    const settings: Options = {
      bom: true,
      columns: columns ? distinct(columns, label) : (header: readonly string[]) => distinct(header, label),
      skip_empty_lines: true,
      skip_records_with_error: true,
      relax_quotes: true,
      max_record_size: maxRecordBytes,
      // The raw text tells an unclosed quote from a quote that is text.
      raw: true,
      on_record: this.#onRecord,
      on_skip: this.#onSkip,
      ...(delimiter !== undefined && { delimiter }),
    }
    this.#parser = parse(settings)
    // Errors reach us through the callbacks of `write` and `end`.
    this.#parser.on('error', () => {})
  }

  async *read(chunks: AsyncIterable<Buffer>): AsyncGenerator<TaskRow[], void, void> {
    try {
      for await (const chunk of chunks) {
        await new Promise<void>((resolve, reject) => {
          this.#parser.write(chunk, (error) => (error ? reject(error) : resolve()))
        })
        yield this.#take()
      }
      await new Promise<void>((resolve) => this.#parser.end(resolve))
      yield this.#take()
    } catch (error) {
      if (!(error instanceof CsvError)) throw error
      yield [...this.#take(), this.#problem(`${readable(error)}; the rest of the file cannot be read`)]
    } finally {
      this.#parser.destroy()
    }
  }

  readonly #onRecord = (parsed: unknown): null => {
    const { record, raw } = parsed as { readonly record: Readonly<Record<string, string>>; readonly raw: string }
    if (Object.values(record).some((value) => isTorn(value, raw))) {
      const problem = `an unclosed quote merged several rows into one; write "" for a quote in the text; the merged row begins: ${beginning(raw)}`
      this.#rows.push(this.#problem(problem))
    } else this.#rows.push({ at: this.#nextRow(), value: record })
    return null
  }

  readonly #onSkip = (error: CsvError | undefined, raw: string | undefined): undefined => {
    // The parser has lost its place. An error thrown here comes back as the error of `write`.
    if (error?.code === 'CSV_MAX_RECORD_SIZE') throw error
    const where = error?.code === 'CSV_QUOTE_NOT_CLOSED' && raw !== undefined ? `; it begins: ${beginning(raw)}` : ''
    this.#rows.push(this.#problem(error ? `${readable(error)}${where}` : 'not valid CSV'))
  }

  #problem(problem: string): TaskRow {
    return { at: this.#nextRow(), problem }
  }

  #nextRow(): string {
    this.#rowNumber += 1
    return `${this.#label} row ${this.#rowNumber}`
  }

  #take(): TaskRow[] {
    const rows = this.#rows
    this.#rows = []
    return rows
  }
}

/** Whether an unquoted field spans several lines: its first quote was never closed, and that of a field below is text in it. */
function isTorn(field: string, raw: string): boolean {
  if (!field.startsWith('"') || !field.includes('\n')) return false
  // In the file, a quoted field that begins with a quote begins with three.
  return raw.includes(field) && !raw.includes(`""${field}`)
}

/** The beginning of a record, to find it by: the number would be of rows, not of lines. */
function beginning(raw: string): string {
  return (/\S.*/.exec(raw)?.[0] ?? '').slice(0, 60)
}

/** Throws if two columns have the same name: only the last would be seen. Unnamed columns are empty ones beside the table. */
function distinct(columns: readonly string[], label: string): string[] {
  const twice = columns.find((name, index) => name !== '' && columns.indexOf(name) !== index)
  if (twice === undefined) return [...columns]
  throw new MillraceError(
    'tasks_failed',
    `${label} has two columns named "${twice}"; rename one of them, or name all of them with csv(path, { columns })`,
  )
}

function readable(error: CsvError): string {
  const { code, columns, record } = error
  if (code === 'CSV_RECORD_INCONSISTENT_COLUMNS' && Array.isArray(columns) && Array.isArray(record)) {
    return `expected ${columns.length} columns, found ${record.length}`
  }
  if (code === 'CSV_QUOTE_NOT_CLOSED') return 'a quote is opened and never closed'
  if (code === 'CSV_MAX_RECORD_SIZE') {
    return `the record is longer than ${maxRecordBytes / 1024 / 1024} MB, probably because a quote is never closed`
  }
  return error.message
}
