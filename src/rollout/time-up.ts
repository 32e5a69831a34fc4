import type { MillraceError } from '../errors/index.ts'
import type { SentCall } from '../inference/index.ts'
import type { SpentTime } from '../kit/index.ts'
import { spent } from './budget-meter.ts'

/**
 * Why a rollout has to end now. Working time that runs out while a backend hangs was not the policy's to spend: a reward
 * for it would teach the model something about our servers.
 */
export function timeUp(
  what: SpentTime,
  {
    lastSent,
    doing,
    waitsForModel,
    heldUpBy,
    serverAway,
  }: {
    readonly lastSent: SentCall | undefined
    readonly doing: string | undefined
    readonly waitsForModel: boolean
    /** The error of the backend that the rollout waits for, if one failed. */
    readonly heldUpBy: MillraceError | undefined
    /** Why a tool server is away that the rollout waits for. */
    readonly serverAway?: MillraceError | undefined
  },
): MillraceError {
  const where = doing === undefined ? '' : `, in ${doing}`
  if (what === 'wall') {
    const why = heldUpBy
      ? ` because a backend had failed: ${heldUpBy.rawMessage}`
      : ': for a limit, or for a backend that is overloaded or gone'
    const forModel = waitsForModel ? `, while it waited for the model${why}` : ''
    const waiting = serverAway ? `, while it waited for a tool server that is away: ${serverAway.rawMessage}` : forModel
    return spent('wall', `its time on the clock is used up${where}${waiting}`)
  }
  if (!lastSent?.isUnheard) return spent('time', `its working time is used up${where}`)
  const silentS = ((performance.now() - lastSent.sentAt) / 1000).toFixed(1)
  const found = `its working time ran out while ${lastSent.backend} had answered nothing for ${silentS} s`
  const next =
    'if the model needs that long, raise --timeout (limits.timeoutMs); with "stream": true its first token shows that it is at work'
  return spent('silence', `${found}. See whether the server hangs; ${next}.`)
}
