import type { Caller } from '../../../gateway/index.ts'
import { textOf } from '../../../schema/index.ts'
import type { RunStore, StoredSession } from '../../../store/index.ts'
import type { ArealSessions } from './areal-sessions.ts'
import { branchSequences, exportedCalls, type ExportedCall, individualSequences } from './exported-calls.ts'
import { ownNameIn } from './session-names.ts'
import type { ShardStore } from './shard-store.ts'
import { referenceTo, type TensorBatch, tensorBatch, tensorPieces } from './tensors.ts'
import { refusal, type StatusRule } from './wire-errors.ts'
import type { ExportRequest } from './wire-schemas.ts'

interface ArealExportsOptions extends StatusRule {
  readonly sessions: ArealSessions
  readonly store: RunStore
  readonly shards: ShardStore
  readonly maxTensorBytes: number
}

interface ExportPlace {
  /** Where clients fetch tensors; undefined if the reply has the content itself. */
  readonly address: string | undefined
}

export interface ArealExport {
  /** The body of the reply. */
  readonly pieces: Iterable<string>
  /** To be called once the client has it: only then its sessions end. */
  readonly onDelivered: () => Promise<void>
}

type Admin = Caller & { readonly kind: 'admin' }

/** Exports of trajectories. One that fails, or that its client does not get, changes nothing. */
export class ArealExports {
  readonly #options: ArealExportsOptions

  constructor(options: ArealExportsOptions) {
    this.#options = options
  }

  async export(owner: Admin, request: ExportRequest, { address }: ExportPlace): Promise<ArealExport> {
    const { sessions } = this.#options
    const { session_ids: sent, trajectory_id: trajectory, style, remove_session: isRemoved } = request
    const names = [...new Set(sent)]
    const sequencesOf = styles.get(style)
    if (!sequencesOf) {
      throw refusal(`Invalid export interactions style ${style.slice(0, 80)}`, { status: 500, strictStatus: 400 })
    }
    const found = await sessions.find(owner, names)
    this.#requireAll(names, found)
    const calls = await this.#calls(owner, found, request)
    const sequences = sequencesOf(calls)
    const pieces = await this.#pieces(owner, { calls, sequences, address })
    const onDelivered = async (): Promise<void> => {
      if (isRemoved) await sessions.remove(owner, found, trajectory ?? undefined)
    }
    return { pieces, onDelivered }
  }

  /** AReaL leaves out what it does not know. */
  #requireAll(names: readonly string[], found: readonly StoredSession[]): void {
    if (!this.#options.strict || found.length === names.length) return
    const known = new Set(found.map(({ id }) => id))
    const missing = names.find((name) => !known.has(ownNameIn(name))) ?? ''
    throw refusal(`there is no session ${missing.slice(0, 80)}, or it was exported and removed`, { status: 404 })
  }

  async #calls(
    owner: Admin,
    sessions: readonly StoredSession[],
    { trajectory_id: named, discount }: ExportRequest,
  ): Promise<ExportedCall[]> {
    const { store } = this.#options
    const calls: ExportedCall[] = []
    for (const session of sessions) {
      const trajectory = this.#options.sessions.trajectory(session, named ?? undefined)
      if (trajectory) calls.push(...(await exportedCalls(store.reader, { owner, session, trajectory, discount })))
    }
    return calls
  }

  async #pieces(
    { tenant }: Admin,
    {
      calls,
      sequences,
      address,
    }: ExportPlace & { readonly calls: ExportedCall[] } & {
      readonly sequences: ReturnType<typeof individualSequences>
    },
  ): Promise<Iterable<string>> {
    const { shards, maxTensorBytes } = this.#options
    if (calls.length === 0) return ['{"traj":{}}']
    if (!sequences) return textPieces(calls)
    const batch = await tensorBatch(sequences, maxTensorBytes)
    const kept = address === undefined ? undefined : shards.add(tenant, Object.values(batch))
    if (address === undefined || !kept) return batchPieces(batch)
    const references = Object.entries(batch).map(([name, tensor], index) => {
      return [name, referenceTo(tensor, { shard: kept[index] ?? '', address })]
    })
    return [JSON.stringify({ traj: Object.fromEntries(references) as object })]
  }
}

const styles: ReadonlyMap<string, typeof individualSequences> = new Map([
  ['individual', individualSequences],
  ['concat', branchSequences],
])

function* batchPieces(batch: TensorBatch): Generator<string, void, void> {
  let before = '{"traj":{'
  for (const [name, tensor] of Object.entries(batch)) {
    yield `${before}"${name}":`
    yield* tensorPieces(tensor)
    before = ','
  }
  yield '}}'
}

/** Calls of a model whose tokens are not known, as text. */
function* textPieces(calls: readonly ExportedCall[]): Generator<string, void, void> {
  let before = '{"traj":{"interactions":['
  for (const { request, reply, reward } of calls) {
    yield before + JSON.stringify({ request, response: textOf(reply), reward })
    before = ','
  }
  yield ']}}'
}
