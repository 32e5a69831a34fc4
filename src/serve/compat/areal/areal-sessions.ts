import { randomBytes } from 'node:crypto'
import type { Caller, Gateway, StartedSessions } from '../../../gateway/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import type { RunStore, StoredSession } from '../../../store/index.ts'
import { ownNameIn, wireName } from './session-names.ts'
import { closeTrajectory, completeReplies, removeTrajectory, type Trajectory, trajectoriesOf } from './trajectories.ts'
import { notAdmin, refusal, unknownKey } from './wire-errors.ts'

interface ArealSessionsOptions {
  readonly gateway: Gateway
  readonly store: RunStore
}

type Admin = Caller & { readonly kind: 'admin' }

interface StartOptions {
  readonly task: string
  readonly groupSize: number
  /** The key of the first session, if its client chose one. */
  readonly key: string | undefined
}

interface RewardOptions {
  readonly reward: number
  /** The reply that it is for; the last complete one if not given. */
  readonly interaction: string | undefined
}

export interface RewardedTrajectory {
  readonly session: string
  readonly trajectory: number
  readonly replies: number
  /** Whether this reward has ended the trajectory; false if it had ended before. */
  readonly isNew: boolean
}

/** AReaL's clients may think for long between two requests: a session that nobody uses ends after a day. */
const ttlSeconds = 24 * 3600
/** The session of requests with an admin's key, for the people who use a model online. */
const onlineTask = '__hitl__'
const onlineGroup = 'areal-online'
const onlineTtlSeconds = 30 * 24 * 3600

/** Sessions of the gateway as AReaL's clients see them. Nothing of them is in memory alone. */
export class ArealSessions {
  readonly #options: ArealSessionsOptions
  /** Work on one session, or with one key, happens in turn. */
  readonly #turns = new Map<string, Promise<unknown>>()
  /** Sessions whose export was delivered, and whose end is on its way to the disk. */
  readonly #removing = new Set<string>()

  constructor(options: ArealSessionsOptions) {
    this.#options = options
  }

  async start(owner: Admin, { task, groupSize, key }: StartOptions) {
    const { gateway } = this.#options
    const keys = Array.from({ length: groupSize }, () => randomBytes(32).toString('base64url'))
    if (key !== undefined) keys[0] = key
    // AReaL's agents reward themselves.
    const options = { taskId: task, groupSize, ttlSeconds, metadata: { client: 'areal' }, selfManaged: true }
    const begin = async (): Promise<StartedSessions> => await gateway.startSessions(owner, options, keys)
    const beginWithKey = async (given: string): Promise<StartedSessions> => {
      this.#requireFree(owner, given)
      return await begin()
    }
    // Two requests must not get the same key.
    const started = await (key === undefined ? begin() : this.#inTurn(`key ${key}`, () => beginWithKey(key)))
    return { ...started, sessions: started.sessions.map(({ id, key: own }) => ({ id: wireName(task, id), key: own })) }
  }

  /** A key whose session waits only for its export may be used again; that session is exported by its name. */
  #requireFree(owner: Admin, key: string): void {
    const { gateway, store } = this.#options
    const caller = gateway.callerFor(key)
    if (!caller) return
    const inUse = (by: string): MillraceError => refusal(`API key is already bound to ${by}.`, { status: 409 })
    if (caller.kind === 'admin' || caller.tenant !== owner.tenant) throw inUse('another user')
    const { sessionId } = caller
    const bound = store.reader.sessions.session(sessionId)
    if (!bound || bound.end || trajectoriesOf(store.reader, sessionId).length > 0) return
    throw inUse(`active session ${wireName(taskOf(bound), sessionId)}`)
  }

  /** The session of a caller. Requests with an admin's key share one, which is begun when it is needed. */
  async sessionOf(caller: Caller): Promise<string> {
    if (caller.kind === 'session') return caller.sessionId
    return await this.#inTurn(`online ${caller.tenant}`, async () => {
      const { gateway } = this.#options
      const query = { group: onlineGroup, state: 'open', limit: 1 } as const
      const [open] = gateway.sessions(caller, query).sessions
      if (open) return open.id
      const options = { taskId: onlineTask, groupId: onlineGroup, ttlSeconds: onlineTtlSeconds }
      const { sessions } = await gateway.startSessions(caller, { ...options, metadata: { client: 'areal' } })
      const [started] = sessions
      if (started) return started.id
      throw new MillraceError('internal', 'no session was started for requests with an admin key')
    })
  }

  /**
   * Rewards a reply. The first reward after a reply ends a trajectory: all complete replies since the one before. Another reward
   * for a reply of an ended trajectory replaces the earlier one.
   */
  async reward(caller: Caller, { reward, interaction }: RewardOptions): Promise<RewardedTrajectory> {
    const id = await this.sessionOf(caller)
    return await this.#inTurn(id, async () => {
      const { gateway, store } = this.#options
      await store.journal.durable()
      const session = store.reader.sessions.session(id)
      if (!session || this.#isRemoved(session)) throw unknownKey()
      // Keys of the gateway's other sessions cannot reward them, here neither.
      if (caller.kind === 'session' && session.data['selfManaged'] !== true) throw notAdmin()
      const trajectories = trajectoriesOf(store.reader, id)
      const replies = completeReplies(store.reader, id)
      const node = rewardedNode({ replies, trajectories, interaction })
      const known = trajectories.find(({ after, end }) => node > after && node <= end)
      const { after = trajectories.at(-1)?.end ?? -1, end = replies.at(-1)?.seq ?? node } = known ?? {}
      // Before the reward, so that both are in one commit.
      if (!known) closeTrajectory(store.journal, id, { end, rewarded: node })
      await gateway.reward(caller, id, { reward, node })
      return {
        session: wireName(taskOf(session), id),
        trajectory: known?.id ?? trajectories.length,
        replies: replies.filter(({ seq }) => seq > after && seq <= end).length,
        isNew: !known,
      }
    })
  }

  /** The sessions of these names that can be exported, with all that will be known of their replies. */
  async find(owner: Admin, names: readonly string[]): Promise<StoredSession[]> {
    const { gateway, store } = this.#options
    await store.journal.durable()
    const found: StoredSession[] = []
    for (const name of names) {
      const id = name === onlineTask ? await this.sessionOf(owner) : ownNameIn(name)
      const session = store.reader.sessions.session(id)
      if (session?.tenant === owner.tenant && !this.#isRemoved(session)) found.push(session)
    }
    await Promise.all(found.map(({ id }) => gateway.versionsRecorded(id)))
    return found
  }

  /** The trajectory of a session that an export is for: the last one if none is named. */
  trajectory({ id }: StoredSession, trajectory: number | undefined): Trajectory | undefined {
    const ready = trajectoriesOf(this.#options.store.reader, id).filter(({ isRemoved }) => !isRemoved)
    return trajectory === undefined ? ready.at(-1) : ready.find((each) => each.id === trajectory)
  }

  /** After an export was delivered: its sessions end. If it was for one trajectory only, the session goes on without that. */
  async remove(owner: Admin, sessions: readonly StoredSession[], trajectory: number | undefined): Promise<void> {
    const { gateway, store } = this.#options
    for (const session of sessions) {
      const named = trajectory ?? (session.group === onlineGroup ? this.trajectory(session, undefined)?.id : undefined)
      if (named !== undefined) removeTrajectory(store.journal, session.id, named)
      else if (session.group !== onlineGroup) this.#removing.add(session.id)
    }
    const ending = sessions.filter(({ id }) => this.#removing.has(id))
    try {
      await Promise.all(ending.map(({ id }) => gateway.endSession(owner, id)))
      await store.journal.durable()
    } finally {
      for (const { id } of ending) this.#removing.delete(id)
    }
  }

  /** One that has expired is still there for its reward and its export. */
  #isRemoved({ id, end }: StoredSession): boolean {
    return end?.why === 'ended' || this.#removing.has(id)
  }

  async #inTurn<Result>(name: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#turns.get(name)
    const turn = (before ?? Promise.resolve()).then(work, work)
    this.#turns.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#turns.get(name) === turn) this.#turns.delete(name)
    }
  }
}

interface RewardTarget {
  readonly replies: ReturnType<typeof completeReplies>
  readonly trajectories: readonly Trajectory[]
  readonly interaction: string | undefined
}

/** The last complete reply that has no trajectory yet, else the one that the last reward was for; or the named one. */
function rewardedNode({ replies, trajectories, interaction }: RewardTarget): number {
  if (interaction !== undefined) {
    const named = replies.findLast(({ id }) => id === interaction)
    if (named) return named.seq
    throw refusal(`Interaction ${interaction.slice(0, 80)} not found`, { status: 400, strictStatus: 404 })
  }
  const last = trajectories.at(-1)
  const reply = replies.findLast(({ seq }) => seq > (last?.end ?? -1))
  const node = reply?.seq ?? last?.rewarded
  if (node !== undefined) return node
  throw refusal('No interactions in session', { status: 400 })
}

function taskOf({ data }: StoredSession): string {
  const { taskId } = data
  return typeof taskId === 'string' ? taskId : ''
}
