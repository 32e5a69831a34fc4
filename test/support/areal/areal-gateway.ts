import { expect } from 'vitest'
import { findModels } from '../../../src/serve/index.ts'
import type { GatewayServerOptions } from '../../../src/serve/index.ts'
import { SimulatorServer, type SimulatorServerOptions } from '../../../src/simulator/index.ts'
import { adminKey, type Reply, TestGateway } from '../gateway/test-gateway.ts'

export interface ArealSession {
  readonly id: string
  readonly key: string
}

interface WireTensor {
  readonly type: 'tensor'
  readonly data: string
  readonly shape: readonly number[]
  readonly dtype: string
}

export type Traj = Readonly<Record<string, WireTensor>>

export const question = [{ role: 'user', content: 'What is 6 * 7?' }]

/** What AReaL's workflow client and its agents send, to a gateway before simulators over HTTP. */
export class ArealGateway implements AsyncDisposable {
  readonly gateway: TestGateway
  readonly backends: readonly SimulatorServer[]
  readonly #ends: AsyncDisposableStack

  private constructor(gateway: TestGateway, backends: readonly SimulatorServer[], ends: AsyncDisposableStack) {
    this.gateway = gateway
    this.backends = backends
    this.#ends = ends
  }

  static async start(
    simulators: readonly SimulatorServerOptions[] = [{}],
    options: Partial<Omit<GatewayServerOptions, 'models'>> = {},
  ): Promise<ArealGateway> {
    await using ends = new AsyncDisposableStack()
    const backends = await Promise.all(simulators.map(async (each) => ends.use(await SimulatorServer.start(each))))
    const { models, facts } = await findModels({
      backends: [],
      models: { policy: { backends: backends.map(({ url }) => ({ url })), maxTries: 1 } },
      env: {},
      signal: AbortSignal.timeout(20_000),
    })
    const gateway = ends.use(await TestGateway.start({ areal: {}, models, facts, ...options }))
    return new ArealGateway(gateway, backends, ends.move())
  }

  async post(path: string, body: unknown, key: string | null = adminKey): Promise<Reply> {
    return await this.gateway.ask(path, { body, key })
  }

  async startGroup(size: number, task = 'task'): Promise<readonly ArealSession[]> {
    const { status, body } = await this.post('/rl/start_session', { task_id: task, group_size: size })
    expect(status).toBe(201)
    const sessions = body['sessions'] as { session_id: string; session_api_key: string }[]
    return sessions.map(({ session_id: id, session_api_key: key }) => ({ id, key }))
  }

  async startOne(): Promise<ArealSession> {
    const [session] = await this.startGroup(1)
    if (!session) throw new Error('no session was started')
    return session
  }

  async chat({ key }: ArealSession, messages: readonly object[] = question, more: object = {}): Promise<Reply> {
    return await this.post('/chat/completions', { model: 'default', messages, ...more }, key)
  }

  /** Chats turn by turn, each with all messages before it. */
  async converse(session: ArealSession, turns: number): Promise<void> {
    const messages: object[] = [...question]
    for (let turn = 0; turn < turns; turn += 1) {
      const { status, body } = await this.chat(session, messages)
      expect(status).toBe(200)
      const [choice] = body['choices'] as { message: object }[]
      messages.push(choice?.message ?? {}, { role: 'user', content: `And ${turn} + 2?` })
    }
  }

  async reward({ key }: Pick<ArealSession, 'key'>, reward: number, interaction: string | null = null): Promise<Reply> {
    return await this.post('/rl/set_reward', { interaction_id: interaction, reward }, key)
  }

  /** As the workflow asks for it. */
  async export(sessions: readonly ArealSession[], more: object = {}): Promise<Reply> {
    const body = {
      session_ids: sessions.map(({ id }) => id),
      group_id: null,
      trajectory_id: null,
      discount: 1,
      style: 'individual',
      remove_session: true,
      ...more,
    }
    return await this.post('/export_trajectories', body)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ends.disposeAsync()
  }
}

export function trajIn({ status, body, text }: Reply): Traj {
  expect([status, text]).toEqual([200, expect.any(String)])
  return body['traj'] as Traj
}

/** The rows of a tensor; of one dimension, the only row. */
export function rowsIn(tensor: WireTensor | undefined): number[][] {
  if (!tensor) throw new Error('there is no such tensor')
  const [rows = 0, width] = tensor.shape
  const numbers = numbersIn(tensor)
  if (width === undefined) return [numbers]
  return Array.from({ length: rows }, (_, row) => numbers.slice(row * width, (row + 1) * width))
}

function numbersIn({ data, dtype }: WireTensor): number[] {
  const { buffer } = Uint8Array.from(Buffer.from(data, 'base64'))
  if (dtype === 'torch.int64') return Array.from(new BigInt64Array(buffer), Number)
  return Array.from(dtype === 'torch.float32' ? new Float32Array(buffer) : new Uint8Array(buffer))
}
