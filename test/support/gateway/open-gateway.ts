import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { modelConfigSchema, type ModelConfigInput } from '../../../src/inference/index.ts'
import type { MessageNode } from '../../../src/schema/index.ts'
import { RunStore } from '../../../src/store/index.ts'
import type { Caller } from '../../../src/gateway/sessions/session-memory.ts'
import { Gateway, type GatewayOptions } from '../../../src/gateway/gateway.ts'
import type { InteractionCall } from '../../../src/gateway/requests/incoming-request.ts'
import { RecordingClient } from './recording-client.ts'

export const admin: Caller = { kind: 'admin', tenant: 'acme' }

export interface OpenGatewayOptions extends Partial<Omit<GatewayOptions, 'models' | 'store'>> {
  readonly models: readonly ModelConfigInput[]
  /** Of an earlier gateway, whose sessions it is to know. */
  readonly folder?: string
}

/** A gateway over a store of its own, both of which are gone at the end of the scope; the folder only if it is its own. */
export class OpenGateway implements AsyncDisposable {
  readonly gateway: Gateway
  readonly store: RunStore
  readonly #owned: AsyncDisposableStack

  private constructor(gateway: Gateway, store: RunStore, owned: AsyncDisposableStack) {
    this.gateway = gateway
    this.store = store
    this.#owned = owned
  }

  static async open({ models, folder, ...options }: OpenGatewayOptions): Promise<OpenGateway> {
    await using owned = new AsyncDisposableStack()
    const parent = folder ?? (await mkdtemp(join(tmpdir(), 'millrace-gateway-')))
    if (folder === undefined) owned.defer(() => rm(parent, { recursive: true, force: true }))
    const create = { name: 'gateway', configDigest: 'gateway', config: { kind: 'gateway' }, provenance: {} }
    const store = owned.use(await RunStore.open({ folder: join(parent, 'run'), create }))
    const gateway = await Gateway.open({
      env: {},
      adminKeys: [{ tenant: 'acme', key: 'an-admin-key-for-tests' }],
      ...options,
      store,
      models: models.map((model) => modelConfigSchema.parse(model)),
    })
    owned.use(gateway)
    return new OpenGateway(gateway, store, owned.move())
  }

  /** A session of the tenant that tests are, and whoever has its key. */
  async session(
    options: Parameters<Gateway['startSessions']>[1] = {},
  ): Promise<{ id: string; key: string; caller: Caller }> {
    const { sessions } = await this.gateway.startSessions(admin, options)
    const [{ id, key } = { id: '', key: '' }] = sessions
    return { id, key, caller: { kind: 'session', tenant: 'acme', sessionId: id } }
  }

  /** Sends a request; `done` settles when its client has got all it gets. */
  send(
    caller: Caller,
    body: unknown,
    { api = 'chat', retryCount = 0, ...more }: Partial<Omit<InteractionCall, 'caller' | 'body'>> = {},
  ): { readonly client: RecordingClient; readonly done: Promise<void> } {
    const client = new RecordingClient()
    const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
    return { client, done: this.gateway.interact({ caller, api, body: bytes, retryCount, ...more }, client) }
  }

  /** The same, when it is over. */
  async ask(...request: Parameters<OpenGateway['send']>): Promise<RecordingClient> {
    const { client, done } = this.send(...request)
    await done
    return client
  }

  async nodes(session: string): Promise<MessageNode[]> {
    await this.store.journal.durable()
    return Array.from(this.store.reader.sessions.nodesOf(session))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}
