/** Whether a file of this name is code that Node can import. */
export function isModuleName(name: string): boolean {
  return /\.[cm]?[jt]sx?$/.test(name)
}
