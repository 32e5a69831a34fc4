/** The exit codes of the process. They are part of the interface: scripts branch on them. */
export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  unscored: 3,
  hungUp: 129,
  interrupted: 130,
  terminated: 143,
} as const

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]
