import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import type { ServerTool } from '../../tools/index.ts'
import type { Transport } from './tool-source.ts'

export type StepName = 'config' | 'command' | 'start' | 'initialise' | 'list' | 'names'

/** One step of an examination, and how it went. */
export interface Step {
  readonly step: StepName
  readonly ok: boolean
  readonly ms: number
  readonly shown: string
  /** The code of the error, if the step failed. */
  readonly code?: ErrorCode
}

export interface ToolCounts {
  readonly count: number
  readonly readOnly: number
  readonly idempotent: number
}

/** The doctor's findings about one server. */
export interface Examination {
  readonly server: string
  readonly isRequired: boolean
  readonly transport: Transport
  readonly steps: readonly Step[]
  readonly exitCode?: number
  /** The end of the server's stderr. */
  readonly stderr?: string
  readonly tools?: ToolCounts
  readonly memoryBytes?: number
  /** How rollouts will share the server, and what that costs. */
  readonly sharing?: string
  /** What to do about problems, or how to improve the configuration. */
  readonly hints: readonly string[]
}

export function countTools(tools: readonly ServerTool[]): ToolCounts {
  return {
    count: tools.length,
    readOnly: tools.filter(({ isReadOnly }) => isReadOnly).length,
    idempotent: tools.filter(({ isIdempotent }) => isIdempotent).length,
  }
}

/** The step at which the examination failed, if one did. */
export function failedStep({ steps }: Examination): Step | undefined {
  return steps.find(({ ok }) => !ok)
}

/** Whether no step failed. */
export function isHealthy(examination: Examination): boolean {
  return failedStep(examination) === undefined
}

/** Whether the configuration is wrong: then no evaluation begins, whether or not the server is required. */
export function isMisconfigured(examination: Examination): boolean {
  return failedStep(examination)?.code === 'config_invalid'
}

/** The steps of one examination, in their order, with the time of each. */
export class Steps {
  readonly taken: Step[] = []

  /** Records how a step went. An error is thrown again: no later step can be tried. */
  async take<T>(step: StepName, work: () => T | Promise<T>, shown: (result: T) => string): Promise<T> {
    const startedAt = performance.now()
    try {
      const result = await work()
      this.taken.push({ step, ok: true, ms: performance.now() - startedAt, shown: shown(result) })
      return result
    } catch (error) {
      const { rawMessage, code } = MillraceError.from(error, 'tool_infra')
      this.taken.push({ step, ok: false, ms: performance.now() - startedAt, shown: rawMessage, code })
      throw error
    }
  }
}
