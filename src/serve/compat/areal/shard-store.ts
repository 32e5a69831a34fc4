import { randomUUID } from 'node:crypto'
import type { Tensor } from './tensors.ts'

interface StoredShard {
  readonly tenant: string
  readonly tensor: Tensor
  readonly expiresAt: number
}

interface ShardStoreOptions {
  readonly maxBytes: number
  /** How long a shard is kept that nobody clears. */
  readonly keepMs: number
}

interface ShardFigures {
  readonly num_tensors: number
  readonly total_bytes: number
}

const sweepMs = 60_000

/** Tensors that clients fetch one by one. What finds no room is not kept, and its export has the content itself. */
export class ShardStore implements Disposable {
  readonly #options: ShardStoreOptions
  /** The oldest first. */
  readonly #shards = new Map<string, StoredShard>()
  readonly #sweeping: NodeJS.Timeout
  #bytes = 0

  constructor(options: ShardStoreOptions) {
    this.#options = options
    this.#sweeping = setInterval(() => this.#dropExpired(), sweepMs).unref()
  }

  get figures(): ShardFigures {
    return { num_tensors: this.#shards.size, total_bytes: this.#bytes }
  }

  /** Keeps all of the tensors and returns their names, or keeps none. */
  add(tenant: string, tensors: readonly Tensor[]): string[] | undefined {
    this.#dropExpired()
    const bytes = tensors.reduce((sum, tensor) => sum + tensor.bytes.byteLength, 0)
    if (this.#bytes + bytes > this.#options.maxBytes) return undefined
    this.#bytes += bytes
    const expiresAt = performance.now() + this.#options.keepMs
    return tensors.map((tensor) => {
      const id = randomUUID()
      this.#shards.set(id, { tenant, tensor, expiresAt })
      return id
    })
  }

  get(tenant: string, id: string): Tensor | undefined {
    this.#dropExpired()
    const shard = this.#shards.get(id)
    return shard?.tenant === tenant ? shard.tensor : undefined
  }

  /** Returns how many of them there were. */
  clear(tenant: string, ids: readonly string[]): number {
    const found = [...new Set(ids)].filter((id) => this.get(tenant, id) !== undefined)
    for (const id of found) this.#drop(id)
    return found.length
  }

  [Symbol.dispose](): void {
    clearInterval(this.#sweeping)
    this.#shards.clear()
  }

  #dropExpired(): void {
    const now = performance.now()
    for (const [id, { expiresAt }] of this.#shards) {
      if (expiresAt > now) return
      this.#drop(id)
    }
  }

  #drop(id: string): void {
    this.#bytes -= this.#shards.get(id)?.tensor.bytes.byteLength ?? 0
    this.#shards.delete(id)
  }
}
