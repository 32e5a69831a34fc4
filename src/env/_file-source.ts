import { basename, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { FileChunks } from './_file-chunks.ts'
import { Utf8Check } from './_utf8-check.ts'
import type { TaskRow, TaskSource } from './task-source.ts'

/** Turns bytes into rows, in batches of about one chunk's worth, so that little is held. */
export type RowReader = (chunks: AsyncIterable<Buffer>, label: string) => AsyncIterable<readonly TaskRow[]>

/** How many batches may be held back after the file was read to its end: a packed file may hold a thousand times its size. */
const maxHeldBatches = 4

/** The tasks in a file, read as they are asked for. Their number is extrapolated from the part that was read. */
export class FileSource implements TaskSource {
  readonly label: string
  readonly isTable: boolean
  readonly #path: string
  readonly #read: RowReader
  #chunks: FileChunks | undefined
  #rows = 0
  #state: 'unread' | 'reading' | 'ended' = 'unread'

  constructor(path: string | URL, read: RowReader, { isTable = false }: { readonly isTable?: boolean } = {}) {
    const isUrl = path instanceof URL || path.startsWith('file:')
    this.#path = isUrl ? fileURLToPath(path) : resolve(path)
    this.label = basename(this.#path)
    this.isTable = isTable
    this.#read = read
  }

  async *rows(): AsyncGenerator<TaskRow, void, void> {
    using chunks = await FileChunks.open(this.#path)
    this.#chunks = chunks
    this.#rows = 0
    this.#state = 'reading'
    // The last batches are held back until the reader has ended: then the number of tasks in a small file is known at its
    // first row.
    let held: (readonly TaskRow[])[] = []
    const encoding = new Utf8Check()
    for await (const batch of this.#read(encoding.watch(chunks), this.label)) {
      this.#rows += batch.length
      held.push(batch.map(encoding.row))
      if (chunks.fractionRead === 1 && held.length < maxHeldBatches) continue
      for (const row of held.flat()) yield row
      held = []
    }
    this.#state = 'ended'
    for (const row of held.flat()) yield row
  }

  total(): { count: number; exact: boolean } | undefined {
    if (this.#state === 'ended') return { count: this.#rows, exact: true }
    const fraction = this.#chunks?.fractionRead ?? 0
    if (this.#rows === 0 || fraction === 0) return undefined
    return { count: Math.max(this.#rows, Math.round(this.#rows / fraction)), exact: false }
  }
}
